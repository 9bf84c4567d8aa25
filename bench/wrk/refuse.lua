-- wrk script: submits with fresh tickets. wrk … -s refuse.lua URL -- PATH_ID TICKETS_FILE [DEPTH]
--
-- TICKETS_FILE has a line `USER TICKET` for each request, as tickets.py writes it; they are used in turn. All requests
-- are put together before the start. DEPTH requests are written at once (HTTP pipelining); without it, one.
local texts, at = {}, 0

function init(args)
    local path_id, file, depth = args[1], args[2], tonumber(args[3] or "1")
    assert(path_id and file, "usage: wrk ... -s refuse.lua URL -- PATH_ID TICKETS_FILE [DEPTH]")
    local batch = {}
    for line in io.lines(file) do
        local user, ticket = line:match("^(%d+) (%S+)$")
        local body = ('{"request_id":"wrk-%s","activity_id":1,"sku_id":1,"user_id":%s,"quantity":1}'):format(user, user)
        local headers = { ["Authorization"] = "Bearer " .. ticket, ["Content-Type"] = "application/json" }
        batch[#batch + 1] = wrk.format("POST", "/v1/seckill/" .. path_id, headers, body)
        if #batch == depth then
            texts[#texts + 1] = table.concat(batch)
            batch = {}
        end
    end
    assert(#texts > 0, file .. " has fewer tickets than one batch takes")
end

function request()
    at = at % #texts + 1
    return texts[at]
end
