import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fixedWindow, memoryStore } from '@sluice/core'
import { algorithmContract, storeContract } from '@sluice/core/testing'

const algorithms = [fixedWindow({ limit: 5, window: 20 })]
algorithmContract({ name: 'fixedWindow', algorithms, runs: 50 }, { test, assert })
storeContract({ name: 'memoryStore', open: () => memoryStore(), sequences: 3 }, { test, assert })
