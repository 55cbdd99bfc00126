"""What a broker answers when it does not do what it is asked."""


class Refused(Exception):
    """An error code of Kafka's, and the reason in words."""

    def __init__(self, code: int, why: str = "") -> None:
        super().__init__(f"error {code}: {why}")
        self.code = code
        self.why = why
