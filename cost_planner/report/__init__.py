"""``siafu report``: finished runs beside each other, as one page that needs nothing but a browser, and as Markdown.

``reading`` reads run directories, ``series`` turns their records into numbers, ``figures`` draws them,
``drawing`` makes SVG of that which follows the page's colours, ``page`` writes. Time, money and value to a score
are ``cost_planner.value.judge``'s.
"""
