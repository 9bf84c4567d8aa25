-- weir's steps of a refusal in nginx's own words: ticket, claims, body, limit, sold-out flag, JSON answer.
--
-- The MAC is HMAC-SHA1, the only one that the module brings (weir and its tickets have SHA-256): it is computed over
-- the same bytes and compared, and since it cannot fit, the comparison decides nothing.
local cjson = require "cjson.safe"
local SECRET = "00112233445566778899aabbccddeeff"

local function answer(status, code)
    ngx.status = status
    local text = cjson.encode({
        request_id = ngx.ctx.request_id, reservation_id = cjson.null, status = code, code = code,
        message = "the units are gone", retryable = false, next_action = "STOP",
        next_poll_after_ms = cjson.null, server_time = ngx.now(),
    })
    ngx.header["Content-Type"] = "application/json"
    ngx.header["Content-Length"] = #text
    ngx.print(text)
end

local function base64url(text)
    text = text:gsub("-", "+"):gsub("_", "/")
    return ngx.decode_base64(text .. ("="):rep(-#text % 4))
end

local header = ngx.var.http_authorization
local signed, payload, mac = (header or ""):match("^Bearer ([%w_-]+%.([%w_-]+))%.([%w_-]+)$")
if not signed then
    return answer(401, "UNAUTHENTICATED")
end
ngx.ctx.mac_fits = ngx.hmac_sha1(SECRET, signed) == base64url(mac)
local claims = cjson.decode(base64url(payload) or "")
if not claims then
    return answer(403, "TOKEN_INVALID")
end
if (claims.expires_at_ms or 0) < ngx.now() * 1000 then
    return answer(403, "TOKEN_EXPIRED")
end
ngx.req.read_body()
local submit = cjson.decode(ngx.req.get_body_data() or "")
if not submit or not submit.user_id or not submit.request_id then
    return answer(400, "INVALID_ARGUMENT")
end
ngx.ctx.request_id = submit.request_id
local limits = ngx.shared.limits
local seen = limits:incr("ip:" .. ngx.var.binary_remote_addr, 1, 0, 1)
if seen and seen > 3000000 then
    return answer(429, "RATE_LIMITED")
end
if ngx.shared.sale:get("sold_out:" .. submit.activity_id .. ":" .. submit.sku_id) then
    return answer(200, "SECKILL_SOLD_OUT")
end
return answer(503, "DEPENDENCY_UNAVAILABLE")
