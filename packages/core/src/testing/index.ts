export { type AlgorithmContractOptions, algorithmContract, type Unreachable } from './algorithm-contract.js'
export type { ContractAssert, ContractTools } from './contract-tools.js'
export { type ManualClock, manualClock } from './manual-clock.js'
export { type StoreContractOptions, type StoreVerb, storeContract } from './store-contract.js'
