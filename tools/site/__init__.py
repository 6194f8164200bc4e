"""The guide as a site: docs/ with the files of the repository that its pages link to, built by Zensical."""
