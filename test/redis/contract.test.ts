import assert from 'node:assert/strict'
import { storeContract } from '@sluice/core/testing'
import { redisStore } from '@sluice/redis'
import { test } from 'vitest'
import { server } from './server.js'

const it = server()
let opened = 0

storeContract(
  {
    name: 'redisStore',
    open: () => redisStore(it.redis, { prefix: `contract-${opened++}`, deadline: '10s' }),
    sequences: 10,
  },
  { test, assert },
)
