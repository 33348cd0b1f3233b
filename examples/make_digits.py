"""Makes digits_logits.npy and digits_labels.npy: what a classifier of handwritten digits says about images it has not seen.

A multinomial logistic regression on scikit-learn's 8x8 digits, three quarters for training, the rest held out (450 images).
  digits_logits.npy  float32 [450, 10], the scores before softmax
  digits_labels.npy  int64 [450], which digit each image shows

To run it again:

    python3 -m venv venv
    venv/bin/pip install numpy scikit-learn
    venv/bin/python make_digits.py

Versions used: numpy 2.4.6, scikit-learn 1.9.1. Another version may differ in the last digits.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

images, labels = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(images / 16, labels, test_size=450, random_state=0, stratify=labels)

# Of C = 0.1, 1, 10, 100 the one with the best cross-validated log loss on the training images.
model = LogisticRegression(C=10.0, max_iter=1000).fit(x_train, y_train)
logits = model.decision_function(x_test).astype(np.float32)

folder = Path(__file__).parent
np.save(folder / "digits_logits.npy", logits)
np.save(folder / "digits_labels.npy", y_test.astype(np.int64))
print(f"{len(y_test)} images, accuracy {model.score(x_test, y_test):.3f}, log loss {log_loss(y_test, model.predict_proba(x_test)):.3f}")
