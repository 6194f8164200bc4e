"""Checks what k8s/ renders for users, by Kubernetes' schemas and by kube-score."""
