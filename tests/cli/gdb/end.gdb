# The run ends under the debugger.
continue
