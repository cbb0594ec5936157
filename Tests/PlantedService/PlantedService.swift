import App
import CPlant
import Foundation
import Isolation

/// The service, with a bug in its JPEG library.
@main
enum PlantedService {
  static func main() async throws {
    if CommandLine.arguments.dropFirst().first == DecoderServer.argument { DecoderServer.run() }
    let environment = ProcessInfo.processInfo.environment
    let configuration = try Configuration.load(file: nil, environment: environment, flags: [])
    try await Service.run(configuration, log: LogFormat.start(configuration.log))
  }
}
