# An installer writes the file anew while the agent reads it, and a plugin's executable.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
61s   configuration undecodable
61s   configuration read
65s   configuration repaired
70s   plugin bridge missing
70s   configuration read
75s   plugin bridge back
5m    end
expect nothing
