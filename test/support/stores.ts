import { memoryStore, type SyncStore } from '@sluice/core'

/** The stores that the laws are tested on. */
export const STORES: readonly { readonly name: string; readonly open: () => SyncStore }[] = [
  { name: 'memoryStore', open: () => memoryStore() },
]
