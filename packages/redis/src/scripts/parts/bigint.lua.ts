/*
 * Integers of any size in Lua, where core uses bigints. An integer is a sign and limbs of 24 bits, the lowest first.
 *
 *     big(double)   toDouble(x)   add(x, y)   sub(x, y)   mul(x, y)   divmod(x, y)   less(x, y)   smaller(x, y)   larger(x, y)
 *
 * `divmod` truncates towards 0, as bigints do. It works bit by bit, because it is rare. `toDouble` goes through hexadecimal
 * digits, because a sum of many limbs would round more than once.
 */
export const BIGINT = `
local LIMB = 16777216

local function trimmed(x)
  while #x > 0 and x[#x] == 0 do x[#x] = nil end
  if #x == 0 then x.negative = false end
  return x
end

local function big(double)
  local x = {negative = double < 0}
  local rest = abs(double)
  while rest > 0 do
    local high = floor(rest / LIMB)
    x[#x + 1] = rest - high * LIMB
    rest = high
  end
  return x
end

local function isAtLeast(x, y)
  if #x ~= #y then return #x > #y end
  for i = #x, 1, -1 do
    if x[i] ~= y[i] then return x[i] > y[i] end
  end
  return true
end

local function addSizes(x, y)
  local sum, carry = {negative = false}, 0
  for i = 1, max(#x, #y) do
    local limb = (x[i] or 0) + (y[i] or 0) + carry
    carry = limb >= LIMB and 1 or 0
    sum[i] = limb - carry * LIMB
  end
  if carry > 0 then sum[#sum + 1] = carry end
  return sum
end

local function subSizes(x, y)
  local rest, borrow = {negative = false}, 0
  for i = 1, #x do
    local limb = x[i] - (y[i] or 0) - borrow
    borrow = limb < 0 and 1 or 0
    rest[i] = limb + borrow * LIMB
  end
  return trimmed(rest)
end

local function add(x, y)
  local sum
  if x.negative == y.negative then
    sum = addSizes(x, y)
  else
    if not isAtLeast(x, y) then x, y = y, x end
    sum = subSizes(x, y)
  end
  sum.negative = x.negative
  return trimmed(sum)
end

local function sub(x, y)
  local opposite = {unpack(y)}
  opposite.negative = not y.negative
  return add(x, opposite)
end

local function less(x, y)
  return sub(x, y).negative
end

local function mul(x, y)
  local product = {negative = x.negative ~= y.negative}
  for i = 1, #x + #y do product[i] = 0 end
  for i = 1, #x do
    local carry = 0
    for j = 1, #y do
      local limb = product[i + j - 1] + x[i] * y[j] + carry
      carry = floor(limb / LIMB)
      product[i + j - 1] = limb - carry * LIMB
    end
    product[i + #y] = product[i + #y] + carry
  end
  return trimmed(product)
end

local function divmod(x, y)
  local quotient, rest = {negative = x.negative ~= y.negative}, {negative = false}
  for i = #x, 1, -1 do
    local limb, bit = 0, LIMB / 2
    local left = x[i]
    while bit >= 1 do
      rest = addSizes(rest, rest)
      if left >= bit then
        left = left - bit
        rest = addSizes(rest, {1})
      end
      if isAtLeast(rest, y) then
        rest = subSizes(rest, y)
        limb = limb + bit
      end
      bit = bit / 2
    end
    quotient[i] = limb
  end
  rest.negative = x.negative
  return trimmed(quotient), trimmed(rest)
end

local function toDouble(x)
  local digits = {'0x0'}
  for i = #x, 1, -1 do digits[#digits + 1] = string.format('%06x', x[i]) end
  local double = tonumber(table.concat(digits) .. 'p0')
  return x.negative and -double or double
end

local function smaller(x, y) if less(y, x) then return y end return x end
local function larger(x, y) if less(x, y) then return y end return x end
`
