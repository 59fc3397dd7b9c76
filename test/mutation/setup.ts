import fc from 'fast-check'

// The same cases for every mutant, and no search for a smaller case after a failure.
fc.configureGlobal({ seed: 1, endOnFailure: true })
