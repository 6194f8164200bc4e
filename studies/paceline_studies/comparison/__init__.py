"""`paceline compare`: finished runs side by side: what they gave, and which differences are more than noise."""
