# The configuration is cut off while the agent runs. No CNI call causes a reading any more, so the rule asks for one. The
# runtime has a sandbox of the pod on record that it gave up. A pod that the kubelet begins afterwards is one of the host's
# network, which waits for something else.
0s    runtime starts
0s    kubelet starts
0s    runtime is followed
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
60s   pod web-1
61s   configuration undecodable
62s   sandbox b of web-1 begins
62s   record b
62s   netns of b lost
3m    pod proxy
6m    end
expect confirmed stuck_start/sandbox not_configured /etc/cni/net.d/10-podnet.conflist since 121s
expect confirmed node_network_unready/bad_configuration critical x1 since 121s
expect incident node_network_unready .stuck_start
