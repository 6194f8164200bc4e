"""What `make release` makes: images by digest, manifests, a Helm chart, bills of materials, licences."""
