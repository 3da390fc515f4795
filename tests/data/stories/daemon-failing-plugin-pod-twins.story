# Pods whose containers end again and again, and are no CNI plugin's or come up: an init container that ends
# well, one that runs for a minute in between, one that its runtime stops, a pod of another name, and one with
# a network of its own.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of kube-flannel-ds-x2x7q on-host
2s    container install-cni in a starts
3s    container install-cni in a exits 1
13s   container install-cni in a starts
14s   container install-cni in a exits 1
34s   container install-cni in a starts
35s   container install-cni in a exits 0
36s   container kube-flannel in a starts
40s   container kube-flannel in a exits 1
50s   container kube-flannel in a starts
55s   container kube-flannel in a exits 1
75s   container kube-flannel in a starts
100s  sandbox b of node-exporter-x2x7q on-host
101s  container main in b starts
102s  container main in b exits 1
103s  container main in b starts
104s  container main in b exits 1
105s  container main in b starts
106s  container main in b exits 1
107s  container main in b starts
110s  sandbox c of calico-node-b2c4d on podnet 10.88.0.2
111s  container main in c starts
112s  container main in c exits 1
113s  container main in c starts
114s  container main in c exits 1
115s  container main in c starts
116s  container main in c exits 1
117s  container main in c starts
150s  container kube-flannel in a exits 1
160s  container kube-flannel in a starts
200s  sandbox d of cilium-x2x7q on-host
201s  container cilium-agent in d starts
202s  container cilium-agent in d is stopped
203s  container cilium-agent in d starts
204s  container cilium-agent in d is stopped
205s  container cilium-agent in d starts
206s  container cilium-agent in d is stopped
207s  container cilium-agent in d starts
9m    end
expect nothing
