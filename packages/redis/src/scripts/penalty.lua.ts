import { Script } from '../clients.js'
import { PENALTY_SCRIPT } from './parts/penalty.lua.js'

export const penaltyScript = new Script(PENALTY_SCRIPT)
