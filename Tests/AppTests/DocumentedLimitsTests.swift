import Foundation
import Settings
import Testing

@testable import API
@testable import App
@testable import Engine
@testable import Fetch
@testable import HTTP
@testable import Images
@testable import Jobs
@testable import SQL
@testable import imagefetch

/// Compares numbers in the documentation with the sources. Each phrase is built from its constant.
@Suite("Documented limits")
struct DocumentedLimitsTests {
  @Test("a documented limit equals the limit in the sources", arguments: phrases)
  func phrase(_ phrase: String) {
    let pages = [
      Documentation.operating, Documentation.limits, Documentation.formats, Documentation.clients,
    ]
    let texts = pages.map(\.flowing) + [Readme.file("deploy/alerts.yaml")]
    #expect(texts.contains { $0.contains(phrase) }, "\(phrase)")
  }

  private static let phrases = origins + sizes + waits + outside

  private static var origins: [String] {
    let rules = OriginRules()
    return [
      "\(rules.unprovenTransfers) until it has answered",
      "After \(rules.maxFailures) requests in a row that get no connection",
      "for \(seconds(rules.firstPause)) s, twice as long each time up to "
        + "\(seconds(rules.longestPause)) s",
      "Every \(ordinal(QueueOrder.agedEvery)) turn",
      "if that is more than \(seconds(QueueOrder.oldAge)) s",
    ]
  }

  private static var sizes: [String] {
    let engine = JobEngine.Configuration()
    let fetcher = CurlFetcher.Configuration()
    let log = LogWriter.Limits()
    let server = HTTPServer.Configuration()
    let gathering = API.APIConfiguration().bodyLimits
    let batched = BodyLimits(maxBody: .max, maxBatch: 100).batch / 100
    let staged = engine.workers * engine.maxBytes
    return [
      "\(engine.maxWaitingRenderings) wait, and the next is refused",
      "`imagefetch_variants_waiting` near \(engine.maxWaitingRenderings)",
      "some 1.5 KB each, for \(2 * engine.snapshotCapacity) |",
      "those of a \(DecodeMemory.smallPart)th, which never wait",
      "`jobs.workers` times `fetch.max_bytes`, \(staged >> 30) GiB",
      "\(fetcher.bufferSize >> 10) KiB each, for up to `jobs.workers`",
      "has not come | \(Decode.freeBytes >> 20) MiB each, for up to `jobs.workers`",
      "once those are more than \(Decode.freeBytes >> 20) MiB",
      "\(fetcher.maxIdleConnections) for idle connections to origins",
      "\(HTTPServer.Configuration().poolSize >> 10) KiB each, "
        + "and \(BodyBuffer.capacity >> 10) KiB more",
      "up to \(log.lines) lines or \(log.bytes >> 20) MiB wait to be written",
      "waits \(seconds(StandardError.flushTimeout)) s for the last lines",
      "for up to `server.max_connections` (\(server.maxConnections)) and \(server.probes.connections) |",
      "\(gathering.budget >> 20) MiB for all together",
      "the upload of a batch takes \(BatchWriter.memory >> 20) MiB of it",
      "jobs of `/events`, that are sent | \(ManyJobsSubscription.maxPageBytes >> 10) KiB for each",
      "\(gathering.single >> 20) MiB of one job, \(batched >> 10) KiB times `api.max_batch`",
      "\(server.probes.connections) more are taken for",
      "one more for each \(QueueRow.recordBytesPerSlot / 1000) kB",
      "more than \(ManyJobsSubscription.maxPending) changed jobs behind",
      "begun by equal jobs | \(WaitingMemory.capacity >> 20) MiB for all: "
        + "\(WaitingMemory.bytesPerJob >> 10) KiB each",
      "recently stored and read jobs | \(KnownJobs.capacity >> 20) MiB",
      "sent from memory | \(Routes.imageMemory >> 20) MiB for all",
      "Images and variants of up to \(StoredBytes.mostInMemory >> 10) KiB",
      "no more than a \(ordinal(PreviewThrottle.pausePerWork + 1)) of a thread",
    ]
  }

  private static var waits: [String] {
    let configuration = JobEngine.Configuration()
    return [
      "a failure stands for \(seconds(JobEngine.failureDuration)) s",
      "where none was decoded for \(seconds(configuration.canary.quiet)) s",
      "or takes \(seconds(configuration.canary.timeout)) s",
      "Work that takes longer than \(seconds(configuration.canary.maxLoadTime)) s",
      "imagefetch_jobs{phase=\"queued\"} > \(configuration.maxQueued / 2)",
    ]
  }

  /// The values in the systemd unit, the container image and the command.
  private static var outside: [String] {
    let unit = Readme.file("deploy/imagefetch.service")
    let files = unit.firstMatch(of: #/LimitNOFILE=(\d+)/#)?.1 ?? "no limit"
    let user = Readme.file("Dockerfile").firstMatch(of: #/(?m)^USER (\S+)$/#)?.1 ?? "no user"
    let folder = Readme.file("Dockerfile").firstMatch(of: #/(?m)^VOLUME (\S+)$/#)?.1 ?? "no folder"
    return [
      "The units below allow \(files)",
      "It runs as \(user) and writes to `\(folder)` alone",
      "exits with \(ExitStatus.operatorMistake.rawValue) on a mistake; "
        + "\(ExitStatus.usageError.rawValue) is a wrong command line, "
        + "\(ExitStatus.internalFault.rawValue) an internal fault, or a store that can't be used",
      "exit status \(ExitStatus.fine.rawValue) or \(ExitStatus.operatorMistake.rawValue)",
    ]
  }

  @Test("the table has a row for each shared resource, with the value of its key or constant")
  func shared() {
    let (engine, fetcher) = (JobEngine.Configuration(), CurlFetcher.Configuration())
    let webhooks = WebhookRules()
    let fixed = [
      "variants that wait to be rendered": "\(engine.maxWaitingRenderings)",
      "lookups of names":
        "\(fetcher.maxLookups); \(fetcher.maxLookups * LookupQueue.threadsForEach) with abandoned ones",
      "refreshes of stale responses": "\(BackgroundQueue.maxRefreshes)",
      "refreshes that wait": "\(BackgroundQueue.mostWaiting)",
      "low-data images being replaced": "\(LowDataReplacer.maxRunning)",
      "webhooks being sent": "\(webhooks.atOnce); \(webhooks.perHost) per host",
      "`/events` streams": "\(API.APIConfiguration.maxEventStreams) per client",
      "memory for JSON": "\(API.APIConfiguration().bodyLimits.budget >> 20) MiB",
      "jobs whose variants are made": "\(FinishingCapacity.maxRendered)",
      "delivery slots": "\(DeliverySlots.atOnce); \(DeliverySlots.perHost) per host of a `put` URL",
      "memory of jobs that wait for loads": "\(WaitingMemory.capacity >> 20) MiB",
      "jobs between their load and their success": "\(FinishingCapacity.maxJobs)",
    ]
    let keyed = [
      "workers": "jobs.workers", "decode threads": "decode.threads",
      "variants made at once": "decode.threads",
      "connections that wait or stream": "server.max_connections",
      "memory for decoding": "decode.max_memory", "queued jobs": "jobs.max_queued",
      "queued jobs of batches": "jobs.max_queued_lines",
      "job records": "storage.max_record_bytes", "stored images, and uploads": "storage.max_bytes",
    ]
    let rows = Documentation.limits.table("Shared resources")
    #expect(Set(rows.map { $0[0] }) == Set(fixed.keys).union(keyed.keys))
    #expect(rows.count == fixed.count + keyed.count)
    let defaults = Dictionary(
      uniqueKeysWithValues: App.Configuration.keys.map { ($0.path, $0.defaultText) })
    for row in rows {
      if let key = keyed[row[0]] {
        #expect(row[2] == "`\(key)`")
        // If the value depends on the machine, the default is not a number.
        let isDerived = row[0] == "variants made at once"
        #expect(isDerived || row[1].hasPrefix("`\(defaults[key] ?? "no such key")`"), "\(row)")
      } else {
        #expect(row[2] == "fixed" && row[1] == fixed[row[0]], "\(row)")
      }
    }
    let reserved = [3, 4, engine.workers].map { ShareBounds.keepingQuarter(of: $0).reserved }
    #expect(reserved == [0, 1, engine.workers / 4])
  }

  @Test("the silence of an event stream is shorter than the timeouts of proxies")
  func quiet() throws {
    let page = Documentation.operating
    let told = try #require(page.flowing.firstMatch(of: #/quiet for (\d+) s at the longest/#)?.1)
    let limit = try #require(Int(told))
    let interval = try #require(EventStream(nil).keepAlive?.interval)
    #expect(interval <= .seconds(limit))
    let nginx = try #require(page.blocks("nginx").first)
    let patience = try #require(
      nginx.firstMatch(of: #/proxy_read_timeout (\d+)s;/#).flatMap { Int($0.1) })
    #expect(.seconds(patience) > API.APIConfiguration().maxWait)
    #expect(patience > limit)
    let body = try #require(
      nginx.firstMatch(of: #/client_max_body_size (\d+)m;/#).flatMap { Int($0.1) })
    #expect(body << 20 >= HTTPServer.Configuration().maxBody)
  }

  @Test("in every unit, stopping takes longer than draining, and memory exceeds decode memory")
  func units() throws {
    let configuration = App.Configuration()
    for (file, pattern) in [
      ("deploy/compose.yaml", #/stop_grace_period: (\d+)s/#),
      ("deploy/compose.cluster.yaml", #/stop_grace_period: (\d+)s/#),
      ("deploy/kubernetes-cluster.yaml", #/terminationGracePeriodSeconds: (\d+)/#),
      ("deploy/kubernetes.yaml", #/terminationGracePeriodSeconds: (\d+)/#),
      ("deploy/imagefetch.service", #/TimeoutStopSec=(\d+)s/#),
    ] {
      let match = try #require(Readme.file(file).firstMatch(of: pattern), "\(file)")
      #expect(.seconds(try #require(Int(match.1))) > configuration.server.drainTimeout, "\(file)")
    }
    for (file, pattern) in [
      ("deploy/compose.yaml", #/mem_limit: (\d+)g/#),
      ("deploy/compose.cluster.yaml", #/mem_limit: (\d+)g/#),
      ("deploy/kubernetes-cluster.yaml", #/memory: (\d+)Gi/#),
      ("deploy/kubernetes.yaml", #/memory: (\d+)Gi/#),
      ("deploy/imagefetch.service", #/MemoryMax=(\d+)G/#),
    ] {
      let match = try #require(Readme.file(file).firstMatch(of: pattern), "\(file)")
      #expect("\(match.1) GiB" == "2 GiB", "\(file)")
    }
    #expect(Documentation.operating.flowing.contains("The defaults fit into 2 GiB"))
  }

  @Test("the documented sum of memory is below what the defaults need")
  func sum() {
    let (engine, server) = (JobEngine.Configuration(), HTTPServer.Configuration())
    let clients = 1000 * (server.poolSize + BodyBuffer.capacity)
    let transfers = engine.workers * CurlFetcher.Configuration().bufferSize
    let shown = 2 * engine.snapshotCapacity * 1500
    let fixed = 50_000_000 + 12_000_000
    let sum =
      engine.limits.maxMemory + engine.cache.memory + clients + transfers + shown + fixed
      + API.APIConfiguration().bodyLimits.budget + engine.workers * Decode.freeBytes
    #expect(sum < 2 << 30)
    #expect(Documentation.operating.flowing.contains("with a thousand clients at once"))
  }

  private static func seconds(_ duration: Duration) -> Int { Int(duration.components.seconds) }

  private static func ordinal(_ number: Int) -> String {
    [8: "eighth", 9: "ninth"][number] ?? "\(number)th"
  }
}
