"""What editors and type checkers know of ``siafu``: names that ``__init__.py`` loads when they are asked for."""

from graph_data.convert import convert as convert
from graph_data.objects.arrays import from_arrays as from_arrays
from graph_data.objects.dgl import from_dgl as from_dgl
from graph_data.objects.dgl import to_dgl as to_dgl
from graph_data.objects.frames import from_pandas as from_pandas
from graph_data.objects.networkx import from_networkx as from_networkx
from graph_data.objects.pyg import from_pyg as from_pyg
from graph_data.objects.pyg import to_pyg as to_pyg
from graph_data.objects.scipy import from_scipy as from_scipy
from graph_data.prepare import prepare as prepare
from run_coordinator.api import train as train
from run_coordinator.baseline import train_baseline as train_baseline
from run_coordinator.evaluate import Evaluation as Evaluation
from run_coordinator.evaluate import evaluate as evaluate
from run_coordinator.export import export as export
from run_coordinator.past_runs import PastRun as PastRun
from run_coordinator.past_runs import PastRuns as PastRuns
from run_coordinator.past_runs import Trials as Trials
from run_coordinator.past_runs import runs as runs
from run_coordinator.predict import predict as predict
from run_coordinator.predict.predictions import Predictions as Predictions
from run_coordinator.recovery.resume import resume as resume
from run_coordinator.repeat import Runs as Runs
from run_coordinator.repeat import repeat as repeat
from run_coordinator.run import Run as Run
from run_coordinator.search import Point as Point
from run_coordinator.search import Search as Search
from run_coordinator.search import search as search
from siafu.graph import Graph as Graph

__version__: str
__all__: list[str]
