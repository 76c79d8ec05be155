"""The lab report's experiment: image classification and a GAN, predicted from epochs and measured."""
