import App
import CPlant
import Foundation
import Isolation

/// The service, with a bug in its JPEG library.
@main
enum PlantedService {
  static func main() async throws {
    CPlant_arm()
    if CommandLine.arguments.dropFirst().first == DecoderServer.argument { DecoderServer.run() }
    let environment = ProcessInfo.processInfo.environment
    let read = { @Sendable () throws(Configuration.Mistakes) in
      try Configuration.load(environment: environment)
    }
    let configuration = try read()
    try await Service.run(configuration, log: LogFormat.start(configuration.log), read: read)
  }
}
