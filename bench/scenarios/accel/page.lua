-- Compares each page with what it has to be. The argument is its number of values.
-- wrk makes no code as it runs then, and its connection may move.
jit.off()

local expected

function init(arguments)
   local words = { arguments[1] .. " values:" }
   for n = 0, tonumber(arguments[1]) - 1 do
      words[#words + 1] = string.format("value%03d", n)
   end
   expected = table.concat(words, " ") .. "\n"
end

function response(status, headers, body)
   if status ~= 200 or body ~= expected then
      io.stderr:write("a wrong page, status ", status, ": ", body)
      os.exit(1)
   end
end
