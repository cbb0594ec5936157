internal import App
internal import ArgumentParser
internal import Foundation

/// `imagefetch serve`
struct Serve: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Runs the service until SIGTERM or SIGINT.",
    discussion: """
      Flags go over the environment (fetch.max_bytes is IMAGEFETCH_FETCH_MAX_BYTES), that over the \
      file, that over the defaults: loopback only, data in ./data.
      """)

  @Option(help: ArgumentHelp("The configuration.", valueName: "file"))
  var config: String?

  @Option(help: ArgumentHelp("The address to listen on, over server.host.", valueName: "address"))
  var host: String?

  @Option(help: ArgumentHelp("The port, over server.port; 0 takes a free one.", valueName: "port"))
  var port: UInt16?

  @Flag(
    help: """
      To try it on one machine: fetches from loopback and private networks too and tells them of ends, has \
      the images of the working directory as local ones, and answers GET /image.
      """)
  var dev = false

  func run() async throws {
    let (config, flags) = (config, flags)
    let configuration = try loaded(from: config, flags: flags)
    let log = LogFormat.start(configuration.log)
    do throws(StartError) {
      try await Service.run(configuration, log: log) { () throws(Configuration.Mistakes) in
        try Configuration.load(
          file: config, environment: ProcessInfo.processInfo.environment, flags: flags)
      }
    } catch {
      throw error.told
    }
  }

  private var flags: [Configuration.Flag] {
    var flags: [Configuration.Flag] = []
    if let host { flags.append(.init(name: "--host", key: "server.host", value: host)) }
    if let port { flags.append(.init(name: "--port", key: "server.port", value: "\(port)")) }
    if dev {
      flags += openingNetworks(privateNetworks, by: "--dev")
      flags.append(.init(name: "--dev", key: "sources.local_root", value: "."))
      flags.append(.init(name: "--dev", key: "view.enabled", value: "true"))
      flags += openingReceivers(privateNetworks, by: "--dev")
    }
    return flags
  }
}

/// The configuration, or its mistakes as the operator's.
func loaded(
  from file: String?, flags: [Configuration.Flag] = []
) throws(OperatorMistakes) -> Configuration {
  do {
    return try Configuration.load(
      file: file, environment: ProcessInfo.processInfo.environment, flags: flags)
  } catch {
    throw OperatorMistakes(lines: error.all.map(\.description))
  }
}
