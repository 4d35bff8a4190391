-- wrk script: every request has a path of its own; the origin names it in the body and in X-Echo.
-- Argument "exact" (one connection a thread): the answer must be the one to the request just sent.
-- Otherwise body and field must name the same path.
local threads = {}
function setup(thread)
  thread:set("id", #threads)
  table.insert(threads, thread)
end

function init(args)
  exact = args[1] == "exact"
  bad, sent, path, first_bad = 0, 0, "", ""
end

function request()
  sent = sent + 1
  path = "/echo/" .. id .. "-" .. sent
  return wrk.format("GET", path)
end

function response(status, headers, body)
  local wanted = path
  if not exact then wanted = headers["X-Echo"] or "no X-Echo" end
  if status ~= 200 or headers["X-Echo"] ~= wanted or body ~= wanted .. "\n" then
    bad = bad + 1
    if first_bad == "" then
      first_bad = status .. " to " .. path .. ": " .. string.format("%q", string.sub(body or "", 1, 200))
    end
  end
end

function done(summary, latency, requests)
  local bad, first = 0, ""
  for _, thread in ipairs(threads) do
    bad = bad + thread:get("bad")
    if first == "" then first = thread:get("first_bad") end
  end
  local e = summary.errors
  io.write(string.format("FIGURES %d %d %d %d %d %d %d %d %d %d %d\n", summary.requests,
    summary.duration, bad, e.connect, e.read, e.write, e.status, e.timeout,
    latency:percentile(50), latency:percentile(99), latency.max))
  if first ~= "" then io.write("FIRST BAD " .. first .. "\n") end
end
