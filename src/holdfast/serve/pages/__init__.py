"""Mission Control: five screens as HTML that the server renders, over the queries of `service`.

A screen is a frozen struct made by a function (`inbox`, `session`, `fleet`, `mission`, `brief`), a template, and its
routes. Everything works by links and forms; the script only replaces rows in place and adds keys.
"""
