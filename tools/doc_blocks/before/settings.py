"""What a policy of the reader's is made of."""

from paceline.extend import Policy, SettingsRule
