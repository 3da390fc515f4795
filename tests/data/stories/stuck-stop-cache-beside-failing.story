# Of one pod the cache file is torn, so that no DEL is called. That another pod's DEL fails has nothing to do with it.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on keynet 10.99.0.2
1s    sandbox b of web-1 on keynet 10.99.0.3
2s    container main in b starts
5s    cache of a torn
60s   kill pause of a by runtime
60s   container main in b is stopped
61s   stop b del-fails
70s   del b del-fails
90s   del b del-fails
9m    end
expect confirmed stuck_stop/del undecodable web-0 a since 60s
expect confirmed blind_spot CniCache
expect confirmed stuck_stop/del x3 web-1 b since 61s
expect confirmed cni_failing/del keyed x3 web-1 b since 61s
expect incident cni_failing .stuck_stop
