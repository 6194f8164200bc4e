"""[Survey]'s baselines: Spark's MLlib on tables of millions of rows, next to scikit-learn and Paceline on the same split."""
