"""What `make release` makes: images by digest, manifests, bills of materials, licences."""
