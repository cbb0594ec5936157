internal import App
internal import ArgumentParser
internal import Foundation

/// `imagefetch serve`
struct Serve: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Runs the service until SIGTERM or SIGINT.",
    discussion: """
      Flags override the environment (fetch.max_bytes is IMAGEFETCH_FETCH_MAX_BYTES), which overrides \
      the file, which overrides the defaults: loopback only, data in ./data.
      """)

  @Option(help: ArgumentHelp("The configuration file.", valueName: "file"))
  var config: String?

  @Option(
    help: ArgumentHelp("The address to listen on; overrides server.host.", valueName: "address"))
  var host: String?

  @Option(
    help: ArgumentHelp("The port; overrides server.port. 0 selects a free one.", valueName: "port"))
  var port: UInt16?

  @Flag(
    help: """
      For development on one machine: allows fetches from and webhooks to loopback and private networks, \
      makes the images in the working directory available as local images, and enables GET /image.
      """)
  var dev = false

  func run() async throws {
    let (config, flags) = (config, flags)
    let configuration = try loadConfiguration(from: config, flags: flags)
    let log = LogFormat.start(configuration.log)
    do throws(StartError) {
      try await Service.run(configuration, log: log) { () throws(Configuration.Mistakes) in
        try Configuration.load(
          file: config, environment: ProcessInfo.processInfo.environment, flags: flags)
      }
    } catch {
      throw error.commandError
    }
  }

  private var flags: [Configuration.Flag] {
    var flags: [Configuration.Flag] = []
    if let host { flags.append(.init(name: "--host", key: "server.host", value: host)) }
    if let port { flags.append(.init(name: "--port", key: "server.port", value: "\(port)")) }
    if dev {
      flags += networkFlags(privateNetworks, by: "--dev")
      flags.append(.init(name: "--dev", key: "sources.local_root", value: "."))
      flags.append(.init(name: "--dev", key: "view.enabled", value: "true"))
      flags += receiverFlags(privateNetworks, by: "--dev")
    }
    return flags
  }
}

/// Loads the configuration. Throws its mistakes.
func loadConfiguration(
  from file: String?, flags: [Configuration.Flag] = []
) throws(OperatorMistakes) -> Configuration {
  do {
    return try Configuration.load(
      file: file, environment: ProcessInfo.processInfo.environment, flags: flags)
  } catch {
    throw OperatorMistakes(lines: error.all.map(\.description))
  }
}
