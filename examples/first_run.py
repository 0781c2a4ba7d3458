"""First run: train a GCN on 1,797 images of handwritten digits, predict, evaluate, and train again to the same bits.

    python first_run.py

It takes seconds, needs no network, and writes run directories to runs/.
"""

import siafu

run = siafu.train("digits", epochs=60, hidden=32)
print(f"test accuracy {run.test_acc:.3f}, in {run.result['train_seconds']:.1f} s; saved in {run.dir}")

predictions = siafu.predict(run)
print("first five vertices:", predictions.classes[:5], "true:", predictions.true[:5])

scores = siafu.evaluate(run).scores
print(f"macro F1 on test vertices {scores['f1_macro']:.3f}")

again = siafu.train("digits", epochs=60, hidden=32)
equal = all((weights == again.weights()[name]).all() for name, weights in run.weights().items())
print("a second run gives the same weights, bit for bit:", equal)
