"""What a policy of the reader's is made of."""

from paceline.core.extension import SettingsRule
from paceline.core.sync.policy import Policy
