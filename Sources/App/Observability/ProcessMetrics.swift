internal import Glibc
internal import Settings

/// Linux's statistics of this process, under the metric names of Prometheus's client libraries.
package enum ProcessMetrics {
  /// The metrics in Prometheus's text format; empty if `/proc` is not mounted.
  package static func render() -> String {
    guard let stat = text("/proc/self/stat"), let end = stat.lastIndex(of: ")") else { return "" }
    // The fields after the command's name, which may contain spaces and parentheses. The first one is the state.
    let fields = stat[end...].split(separator: " ").dropFirst().map { Double($0) ?? 0 }
    guard fields.count > 21 else { return "" }
    let ticks = Double(sysconf(Int32(_SC_CLK_TCK)))
    var result = ""
    add("process_cpu_seconds_total", "counter", "CPU time used.", (fields[11] + fields[12]) / ticks)
    if let open = openDescriptors() {
      add("process_open_fds", "gauge", "Open file descriptors.", open)
    }
    let pages = Double(sysconf(Int32(_SC_PAGESIZE)))
    add("process_resident_memory_bytes", "gauge", "Memory in RAM.", fields[21] * pages)
    if let boot = bootTime() {
      add(
        "process_start_time_seconds", "gauge", "Unix time of the start.", boot + fields[19] / ticks)
    }
    add("process_threads", "gauge", "Threads.", fields[17])
    add("process_virtual_memory_bytes", "gauge", "Address space.", fields[20])
    return result

    func add(_ name: String, _ kind: String, _ help: String, _ value: Double) {
      result += "# HELP \(name) \(help)\n# TYPE \(name) \(kind)\n"
      result += "\(name) \(MetricName.number(value))\n"
    }
  }

  private static func text(_ path: String) -> String? {
    guard case .bytes(let bytes) = FileText.read(path, limit: 1 << 20) else { return nil }
    return String(decoding: bytes, as: UTF8.self)
  }

  private static func bootTime() -> Double? {
    let line = text("/proc/stat")?.split(separator: "\n").first { $0.hasPrefix("btime ") }
    return line.flatMap { Double($0.dropFirst(6)) }
  }

  private static func openDescriptors() -> Double? {
    guard let folder = opendir("/proc/self/fd") else { return nil }
    defer { closedir(folder) }
    var count = 0.0
    while let entry = readdir(folder) {
      // Skip "." and "..". The descriptor that reads the folder is subtracted below.
      if entry.pointee.d_name.0 != CChar(UInt8(ascii: ".")) { count += 1 }
    }
    return count - 1
  }
}
