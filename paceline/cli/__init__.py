"""The commands of `paceline`: what each takes and prints. Nothing else imports them."""
