"""Do the tokens add up? What was sent, what answers report, what prefill and decode count (I4, I6). Sends nothing."""
