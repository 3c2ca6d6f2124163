"""Sessions from elsewhere: of EMR and of the Spark operator, opened and opened again where they have ended."""
