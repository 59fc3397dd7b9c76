import assert from 'node:assert/strict'
import { memoryStore } from '@sluice/core'
import { storeContract } from '@sluice/core/testing'
import { test } from 'vitest'
import { asynchronous } from '../support/async-store.js'

storeContract({ name: 'memoryStore', open: () => memoryStore() }, { test, assert })
storeContract({ name: 'an asynchronous store', open: () => asynchronous(memoryStore()) }, { test, assert })
