# The executable of the plugin loopback is missing. The other plugins succeed, and containerd can call no DEL: it keeps the
# sandboxes on record, with their namespaces, and the kubelet has it make another one each time.
0s    runtime starts
0s    kubelet starts
1s    pod web-0
2s    sandbox a of web-0 begins
2s    add a podnet 10.88.0.2
2s    record a
20s   sandbox b of web-0 begins
20s   add b podnet 10.88.0.3
20s   record b
60s   sandbox c of web-0 begins
60s   add c podnet 10.88.0.4
60s   record c
5m    end
expect confirmed stuck_start/network plugin_not_called loopback 10.88.0.2 10.88.0.3 web-0 a b c since 2s
