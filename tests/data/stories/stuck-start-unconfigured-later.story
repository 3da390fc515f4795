# The configuration is cut off while the agent runs. No CNI call causes a reading any more, so the rule asks for one. A pod
# that the kubelet begins afterwards is one of the host's network, which waits for something else.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
60s   pod web-1
61s   configuration undecodable
3m    pod proxy
6m    end
expect confirmed stuck_start/sandbox not_configured /etc/cni/net.d/10-podnet.conflist since 121s
