# After a reboot the pid in the path of a sandbox of before is that of another pod's pause.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 before boot
2s    sandbox b of web-1 on podnet 10.88.0.3
10s   del a podnet in process of b
11s   forget a
9m    end
expect confirmed cni_wrong_del/foreign_netns bridge web-0 a b since 10s
