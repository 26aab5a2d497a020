"""Network egress: one proxy for each session, which allows the requests in its policy and inserts secrets."""
