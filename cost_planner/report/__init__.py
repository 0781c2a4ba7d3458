"""``siafu report``: finished runs side by side, as one HTML page without other files, and as Markdown.

``reading`` reads run directories, ``series`` turns their records into numbers, ``figures`` draws them,
``drawing`` makes SVG of that which follows the page's colours, ``page`` writes. Time, money and value to a score
are ``cost_planner.value.judge``'s.
"""
