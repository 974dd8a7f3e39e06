"""Students: linear models on n-grams that imitate a trained model, alone or in a cascade with it."""
