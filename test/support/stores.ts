import { memoryStore, type SyncStore } from '@sluice/core'

/** Every store the laws run on. */
export const STORES: readonly { readonly name: string; readonly open: () => SyncStore }[] = [
  { name: 'memoryStore', open: () => memoryStore() },
]
