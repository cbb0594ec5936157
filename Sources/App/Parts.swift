internal import API
internal import Contract
internal import Codec
internal import Executors
internal import Fetch
internal import Foundation
internal import HTTP
internal import Jobs
internal import Logging
internal import Store

extension JobEngine: JobService {}

/// The service's parts, built in the order in which they need each other and closed in reverse.
struct Parts: Sendable {
  private let configuration: Configuration
  private let log: Logger
  private let jobs: SQLiteJobStore
  private let fetcher: CurlFetcher
  private let engine: JobEngine
  private let server: HTTPServer

  init(_ configuration: Configuration, registry: PrometheusRegistry, log: Logger) throws(StartError) {
    self.configuration = configuration
    self.log = log
    let path = configuration.storage.path
    do throws(StoreError) {
      jobs = try SQLiteJobStore(SQLiteJobStore.Configuration(path: path))
      let images = try FileImageStore(FileImageStore.Configuration(path: path))
      fetcher = try Self.makeFetcher(configuration)
      engine = JobEngine(
        configuration.engine, store: jobs, images: images, fetcher: fetcher, codec: StreamingCodec(),
        executor: ThreadPool(name: "decode", threads: configuration.decode.threads),
        now: { Timestamp(milliseconds: Int64(Date().timeIntervalSince1970 * 1000)) }, log: log)
    } catch {
      throw .operatorMistake("storage.path: \"\(path)\" can't be used: \(error.reason)")
    }
    let engine = engine
    let routes = Routes(
      service: engine, configuration: configuration.routes, openAPI: OpenAPIDocument.bytes,
      metrics: {
        await engine.observe()
        return registry.render()
      }, log: log)
    server = HTTPServer(
      try configuration.server(), handler: routes.respond(to:), refusal: routes.refuse(_:),
      log: log)
  }

  /// Opens the port and says so.
  func listen() throws(StartError) {
    do throws(ServerError) {
      let (host, port) = try server.start()
      log.notice("listening", metadata: ["address": "\(host)", "port": "\(port)"])
    } catch {
      throw error.startError
    }
  }

  /// Works until drained.
  func work() async -> StartError? {
    do {
      try await engine.run()
      return nil
    } catch {
      return .internalFault("the store can't be read: \(error)")
    }
  }

  /// Takes no more jobs and lets the running ones finish, while clients can still ask for them.
  func drain() async {
    log.notice("stopping", metadata: ["drain_timeout": "\(configuration.server.drainTimeout)"])
    await engine.drain(within: configuration.server.drainTimeout)
  }

  func close() async {
    server.stopAccepting()
    await server.stop(within: .seconds(2))
    fetcher.shutdown()
    await jobs.close()
  }
}
