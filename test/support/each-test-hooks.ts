import { afterEach, beforeEach } from 'vitest'
import { beginTest, endTest } from './each-test.js'

beforeEach(beginTest)
afterEach(endTest)
