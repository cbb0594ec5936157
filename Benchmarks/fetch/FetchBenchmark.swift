// Measures the cost of a transfer: fetches a URL repeatedly with several transfers at once, and prints the rate and the CPU
// time of this process per transfer. With `--hold` it starts the transfers without reading their bytes, and prints the
// memory of each. The origin is on loopback.
//
//   swift run -c release FetchBenchmark http://127.0.0.1:8000/10k.bin 50000 64
//   swift run -c release FetchBenchmark http://127.0.0.1:8000/slow 2000 --hold
import Fetch
import Foundation
import Jobs

@main
enum FetchBenchmark {
  static func main() async throws {
    let words = CommandLine.arguments.dropFirst()
    guard words.count == 3, let url = SourceURL(words[1]), let count = Int(words[2]) else {
      FileHandle.standardError.write(Data("usage: FetchBenchmark URL COUNT AT_ONCE|--hold\n".utf8))
      exit(2)
    }
    var configuration = CurlFetcher.Configuration()
    configuration.policy.allowNetworks = [CIDR("127.0.0.0/8")!]
    configuration.policy.allowPorts = []
    let fetcher = try CurlFetcher(configuration)
    let request = FetchRequest(url: url, timeout: .seconds(600), maxBytes: 1 << 30)
    if let atOnce = Int(words[3]) {
      try await run(fetcher, request, count: min(1_000, count), atOnce: atOnce)
      let (wall, cpu) = (ContinuousClock.now, cpuTime())
      try await run(fetcher, request, count: count, atOnce: atOnce)
      let seconds = (ContinuousClock.now - wall) / .seconds(1)
      let each = (cpuTime() - cpu) / Double(count) * 1e6
      print(String(format: "%.0f per second, %.1f us of CPU each", Double(count) / seconds, each))
    } else {
      try await hold(fetcher, request, count: count)
    }
  }

  static func run(
    _ fetcher: CurlFetcher, _ request: FetchRequest, count: Int, atOnce: Int
  ) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<atOnce {
        group.addTask {
          for _ in stride(from: number, to: count, by: atOnce) {
            let body = try await fetcher.fetch(request).body
            while try await body.next() != nil {}
          }
        }
      }
      try await group.waitForAll()
    }
  }

  static func hold(_ fetcher: CurlFetcher, _ request: FetchRequest, count: Int) async throws {
    var held = try await [fetcher.fetch(request)]
    let before = residentKiB()
    held += try await withThrowingTaskGroup(of: FetchedResponse.self) { group in
      for _ in 0..<count { group.addTask { try await fetcher.fetch(request) } }
      return try await group.reduce(into: []) { $0.append($1) }
    }
    try await Task.sleep(for: .seconds(1))
    print(String(format: "%.1f KiB each", Double(residentKiB() - before) / Double(count)))
    withExtendedLifetime(held) {}
  }

  static func cpuTime() -> Double {
    var time = timespec()
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
  }

  static func residentKiB() -> Int {
    let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
    let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") } ?? ""
    return Int(line.filter(\.isNumber)) ?? 0
  }
}
