<?php
// A page: asks redis for N values, one after the other, on a connection that lasts.
$count = (int)substr($_SERVER['REQUEST_URI'], 1);
$redis = pfsockopen('127.0.0.1', (int)$_SERVER['REDIS_PORT']);
$text = "$count values:";
for ($n = 0; $n < $count; $n++) {
    $key = "key$n";
    fwrite($redis, "*2\r\n\$3\r\nGET\r\n\$" . strlen($key) . "\r\n$key\r\n");
    $length = (int)substr(fgets($redis), 1);
    $text .= ' ' . substr(fread($redis, $length + 2), 0, $length);
}
header('Content-Type: text/plain');
echo $text, "\n";
