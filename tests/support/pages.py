"""What pages of one file must not have."""

import re

FROM_ELSEWHERE = re.compile(r"https?:|//|<script|<link|<iframe|@import|url\((?!#)|\son\w+=")
"""Finds in HTML what would load something, or run it; leave data in base64 out before."""
