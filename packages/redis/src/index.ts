export type { IoredisLike, NodeRedisLike, RedisClient } from './clients.js'
export { type RedisStore, type RedisStoreOptions, redisStore, type StoredKey } from './redis-store.js'
