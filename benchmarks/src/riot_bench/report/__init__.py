"""The report: runs the papers' experiments one by one, stores their results and shows them on one page."""
